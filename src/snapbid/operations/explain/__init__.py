"""Why a request gets the answer it gets: the live decision's own code, asked for its reasons."""
