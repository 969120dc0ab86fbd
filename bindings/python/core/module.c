/* SPDX-License-Identifier: Apache-2.0 */
/* What the module has besides what SWIG writes. */
#include "core.h"

static PyObject *set_errors(PyObject *Py_UNUSED(module), PyObject *classes) { return pkvpy_set_errors(classes); }

static PyMethodDef functions[] = {
    {"set_log", pkvpy_set_log, METH_VARARGS, "set_log(function, max_level): function(level, message) gets the library's messages."},
    {"end_log", pkvpy_end_log, METH_NOARGS, "end_log(): no message is on its way any more when it returns."},
    {"set_errors", set_errors, METH_O, "set_errors(classes): exception classes by status; that of 0 is for the others."},
    {"memory", pkvpy_make_view, METH_VARARGS, "memory(handle, address, dtype, shape, strides, writable, host=False): a view of a pool's memory."},
    {NULL, NULL, 0, NULL},
};

int pkvpy_init(PyObject *module) {
    if (PyType_Ready(&pkvpy_handle_type) != 0 || PyType_Ready(&pkvpy_geometry_type) != 0 || PyType_Ready(&pkvpy_view_type) != 0 ||
        PyType_Ready(&pkvpy_counter_type) != 0 || PyType_Ready(&pkvpy_pin_type) != 0 || pkvpy_ready_anchor() != 0)
        return -1;
    Py_INCREF(&pkvpy_handle_type);
    Py_INCREF(&pkvpy_view_type);
    Py_INCREF(&pkvpy_counter_type);
    Py_INCREF(&pkvpy_pin_type);
    if (PyModule_AddObject(module, "Handle", (PyObject *)&pkvpy_handle_type) != 0 ||
        PyModule_AddObject(module, "View", (PyObject *)&pkvpy_view_type) != 0 ||
        PyModule_AddObject(module, "Counter", (PyObject *)&pkvpy_counter_type) != 0 ||
        PyModule_AddObject(module, "Pin", (PyObject *)&pkvpy_pin_type) != 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
