// SPDX-License-Identifier: GPL-2.0-or-later
/* A knapsack: which of 940 items to pack, for the highest price. */
#include <stdio.h>
#include "knapsack.h"

#define ITEMS 940
#define CAPACITY 4537

static struct item items[ITEMS];

/* The same items in every run: numbers by the generator of POSIX's rand(). */
static void make_items(void)
{
	unsigned int next = 1;
	int i;

	for (i = 0; i < ITEMS; i++) {
		next = next * 1103515245 + 12345;
		items[i].weight = 1 + next / 65536 % 13;
		next = next * 1103515245 + 12345;
		items[i].price = 1 + next / 65536 % 10000;
	}
}

/* Take an item into account: `with` has the highest price for each weight then. */
static void pack_knapsack(const int *packed, int *with, const struct item *item)
{
	int weight, price;

	for (weight = 0; weight < CAPACITY; weight++) {
		price = get_cond_maxprice(packed, weight, item);
		with[weight] = price > packed[weight] ? price : packed[weight];
	}
}

int main(void)
{
	static int prices[2][CAPACITY];
	int i;

	make_items();
	for (i = 0; i < ITEMS; i++)
		pack_knapsack(prices[i % 2], prices[(i + 1) % 2], &items[i]);
	printf("%d\n", prices[ITEMS % 2][CAPACITY - 1]);
	return 0;
}
