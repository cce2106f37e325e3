    // Sums that are put by the sizes alone need no more.
