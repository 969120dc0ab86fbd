// SPDX-License-Identifier: Apache-2.0
// Addresses: of the servers that a directory consists of, as the user names them, and of nodes, as strangers may have
// written them.
#pragma once

#include "core/status.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pkv::directory {

/// One server. What is said of it to others is its label, never the rest.
struct Server {
    std::string host; ///< lower-case name, or address
    uint16_t port = 0;
    bool tls = false;
    std::string user;
    std::string password; ///< empty: none is asked for
    uint32_t database = 0;
    std::string label; ///< host:port, and /database unless that is 0

    Server() = default;
    ~Server(); ///< wipes the password
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;
};
using Servers = std::vector<std::shared_ptr<const Server>>;

constexpr size_t most_servers = 16;

/// "redis://[[user]:password@]host[:port][/database]", several of them with commas between; rediss is TLS. What has
/// another meaning in a URL, and commas, are written %XX in user and password. PKV_ERR_INVALID or PKV_ERR_LIMIT, with
/// no word of the text.
pkv_status parse_servers(std::string_view text, Servers &servers);

/// An address at which a node may be: numeric, of one machine, with a port; as this library writes it, and not
/// otherwise.
bool is_node_address(std::string_view text);
/// The same of "host:port" as a user writes it, for a node that listens at `listens` (as is_node_address() has it, but
/// for wildcards): a port of 0 is that one's, and so is the family, if the host has both. May wait for the system to
/// resolve a name. PKV_ERR_INVALID for what others cannot connect to; PKV_ERR_IO for a name that has no address.
pkv_status make_node_address(const std::string &text, const std::string &listens, std::string &address);

} // namespace pkv::directory
