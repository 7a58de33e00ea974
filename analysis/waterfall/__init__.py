"""Where the speed goes between one rank and many: the parts of a scaling loss, by controls and without a profiler."""
