/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics for Prometheus: GET /metrics over HTTP/1.0, one request at a time, and nothing else. */
#ifndef NODE_METRICS_H
#define NODE_METRICS_H

#include <pagedkv/pagedkv.h>
#include <stdbool.h>

/* Listens at host:port; "-1" as descriptor means that it does not. False: stderr says why. `address` [280]: where. */
bool metrics_listen(const char *host_port, int *descriptor, char *address);

/* Takes one connection and answers it; a client that is slower than two seconds is let go of. */
void metrics_answer(int descriptor, const pkv_prometheus_sources *sources);

/* The text of the statistics, from malloc(), or NULL. */
char *metrics_text(const pkv_prometheus_sources *sources);

#endif
