/* SPDX-License-Identifier: Apache-2.0 */
/* What the sanitizers are not to report, of every test program. libfabric, which the plug-in for remote nodes brings along, was
 * not built for them, and its findings would be its own: only frames inside of it are named here. */
#if defined(__SANITIZE_ADDRESS__)
/* It keeps what it has allocated for its providers until the process ends, in places that are not looked at. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libfabric.so.1\n"; }
#elif defined(__SANITIZE_THREAD__)
/* Its atomic operations are not seen, so that what it orders by them looks like a race: between two of its own accesses, and
 * where it copies to and from our memory. And since its locking is not looked at either, an unlock by its destructor, which the
 * loader calls, has no lock before it. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) {
    return "called_from_lib:libfabric.so.1\nrace:libfabric.so.1\nmutex:_dl_call_fini\n";
}
#endif
