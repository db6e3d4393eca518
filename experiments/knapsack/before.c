// SPDX-License-Identifier: GPL-2.0-or-later
#include "knapsack.h"

int get_cond_maxprice(const int *packed, int weight, const struct item *item)
{
	int most = weight - item->weight;
	int best = -1;
	int left;

	/* Lighter ones may be worth more. */
	for (left = most; left >= 0 && left > most - item->weight; left--) {
		if (packed[left] > best)
			best = packed[left];
	}
	return best < 0 ? -1 : best + item->price;
}
