// SPDX-License-Identifier: GPL-2.0-or-later
#include "knapsack.h"

int get_cond_maxprice(const int *packed, int weight, const struct item *item)
{
	int most = weight - item->weight;

	/* What may weigh more is never worth less. */
	return most < 0 ? -1 : packed[most] + item->price;
}
