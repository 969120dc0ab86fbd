/* SPDX-License-Identifier: Apache-2.0 */
/* What the sanitizers are not to report, of every test program. libfabric, which the plug-in for remote nodes brings along, was
 * not built for them, and its findings would be its own: only frames inside of it are named here. */
#if defined(__SANITIZE_ADDRESS__)
/* It keeps what it has allocated for its providers until the process ends, in places that are not looked at. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libfabric.so.1\n"; }
#elif defined(__SANITIZE_THREAD__)
/* Its thread sends memory that peers read one-sided, and knows no more of who wrote it than they do: what orders the two is a
 * peer's word that it has read, which comes over another connection. And an unlock by its destructor, which the loader calls, has
 * no lock before it that was seen. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "race:libfabric.so.1\nmutex:_dl_call_fini\n"; }
#endif
