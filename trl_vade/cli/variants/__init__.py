"""`trl-vade variants`: a data set of originals and their variants, from any data set."""
