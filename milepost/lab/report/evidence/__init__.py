"""Is a run to be believed? What papers found (published, patterns), and whether models still learn (learning)."""
