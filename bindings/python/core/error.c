/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses become exceptions. */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>

static PyObject *error_classes;

PyObject *pkvpy_set_errors(PyObject *classes) {
    if (!PyDict_Check(classes)) {
        PyErr_SetString(PyExc_TypeError, "a dict of exception classes by status");
        return NULL;
    }
    Py_INCREF(classes);
    Py_XSETREF(error_classes, classes);
    Py_RETURN_NONE;
}

static void raise_text(pkv_status status, const char *text) {
    PyObject *const key = PyLong_FromLong(status), *const other = PyLong_FromLong(0);
    PyObject *class = NULL;
    if (key != NULL && other != NULL && error_classes != NULL) {
        class = PyDict_GetItemWithError(error_classes, key);
        if (class == NULL && !PyErr_Occurred()) class = PyDict_GetItemWithError(error_classes, other);
    }
    if (class != NULL) {
        PyObject *const detail = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
        PyObject *const error = detail != NULL ? PyObject_CallFunctionObjArgs(class, key, detail, NULL) : NULL;
        if (error != NULL) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_XDECREF(error);
        Py_XDECREF(detail);
    } else if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s", pkv_status_string(status), text);
    }
    Py_XDECREF(key);
    Py_XDECREF(other);
}

void pkvpy_raise_last(pkv_status status) {
    char text[1024] = "";
    (void)pkv_last_error(text, sizeof text);
    raise_text(status, text);
}

void pkvpy_raise(pkv_status status, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    raise_text(status, text);
}
