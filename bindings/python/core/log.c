/* SPDX-License-Identifier: Apache-2.0 */
/* The log: a Python function that the library's threads call. At the interpreter's end it is taken away, and waited for,
 * before anything that it needs goes. */
#include "core.h"

#include <sched.h>

static PyObject *receiver;      /* with the interpreter lock */
static int32_t num_inside;      /* messages on their way; atomic */
static int32_t accepts;         /* 0: none may begin; atomic */

static void receive(void *user, int32_t level, const char *message) {
    (void)user;
    __atomic_add_fetch(&num_inside, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&accepts, __ATOMIC_SEQ_CST) != 0) {
        const PyGILState_STATE state = PyGILState_Ensure();
        PyObject *const function = receiver;
        if (function != NULL) {
            PyObject *type, *value, *traceback;
            PyErr_Fetch(&type, &value, &traceback);
            Py_INCREF(function);
            PyObject *const text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
            PyObject *const result = text != NULL ? PyObject_CallFunction(function, "iO", (int)level, text) : NULL;
            if (result == NULL) PyErr_WriteUnraisable(function);
            Py_XDECREF(result);
            Py_XDECREF(text);
            Py_DECREF(function);
            PyErr_Restore(type, value, traceback);
        }
        PyGILState_Release(state);
    }
    __atomic_sub_fetch(&num_inside, 1, __ATOMIC_SEQ_CST);
}

static void stop(void) {
    pkv_set_log(NULL, NULL, 0);
    __atomic_store_n(&accepts, 0, __ATOMIC_SEQ_CST);
}

PyObject *pkvpy_set_log(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *function;
    int level;
    if (!PyArg_ParseTuple(args, "Oi:set_log", &function, &level)) return NULL;
    if (function != Py_None && !PyCallable_Check(function)) {
        PyErr_SetString(PyExc_TypeError, "a function of (level, message), or None");
        return NULL;
    }
    if (function == Py_None) {
        stop();
        Py_CLEAR(receiver);
        Py_RETURN_NONE;
    }
    Py_INCREF(function);
    Py_XSETREF(receiver, function);
    __atomic_store_n(&accepts, 1, __ATOMIC_SEQ_CST);
    pkv_set_log(receive, NULL, level);
    Py_RETURN_NONE;
}

/* At exit, from Python's atexit: those inside need the interpreter lock to leave. */
PyObject *pkvpy_end_log(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args)) {
    stop();
    Py_BEGIN_ALLOW_THREADS
    while (__atomic_load_n(&num_inside, __ATOMIC_SEQ_CST) != 0) sched_yield();
    Py_END_ALLOW_THREADS
    Py_CLEAR(receiver);
    Py_RETURN_NONE;
}
