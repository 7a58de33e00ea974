// Loaded before the C library's own: stretches the moments in which something may come between.
//
//   SLOW_CALLS_STOP_AT=posix_fallocate   waits for ever where a new shared file would get its memory
//   SLOW_CALLS_LOCK_DELAY=microseconds   hesitates between the creation of a file and its lock
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

int posix_fallocate(int file, off_t offset, off_t length) {
  static int (*real)(int, off_t, off_t);
  const char* stop_at = getenv("SLOW_CALLS_STOP_AT");
  if (stop_at && strcmp(stop_at, "posix_fallocate") == 0) {
    for (;;) pause();
  }
  if (!real) real = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
  return real(file, offset, length);
}

int flock(int file, int operation) {
  static int (*real)(int, int);
  const char* delay = getenv("SLOW_CALLS_LOCK_DELAY");
  if (delay && operation == LOCK_EX) usleep((useconds_t)atoi(delay));
  if (!real) real = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
  return real(file, operation);
}
