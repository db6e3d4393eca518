/* SPDX-License-Identifier: GPL-2.0-or-later */

/* An item that is packed or not. */
struct item {
	int weight;
	int price;
};

/*
 * The highest price of what is packed with a weight of at most `weight`, if
 * `item` is packed too: `packed` has it for each weight, without the item.
 * -1 if it is too heavy.
 */
int get_cond_maxprice(const int *packed, int weight, const struct item *item);
