/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the bindings that all SWIG languages share. A language's own file gives the %module, defines the macros
 * that parameters.i lists, includes this, says what is special about single functions, and includes headers.i. */
%{
#include <pagedkv/pagedkv.h>
#include "structs.h"
%}
%include <stdint.i>

%include "packed.i" /* before all names are denied */
%include "admitted.i"
%include "extents.i"
%include "parameters.i"
%include "structs.i"
