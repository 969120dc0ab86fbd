// SPDX-License-Identifier: Apache-2.0
#include "directory/server.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <sodium.h>
#include <sys/socket.h>

namespace pkv::directory {
namespace {

constexpr size_t longest_text = 8192;
constexpr size_t longest_host = 253;
constexpr size_t longest_node_address = 64;
constexpr uint16_t usual_port = 6379;
constexpr uint64_t most_databases = 1u << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Decimal digits, at least one, up to `most`.
bool read_number(std::string_view text, uint64_t most, uint64_t &number) {
    number = 0;
    if (text.empty() || text.size() > 10 || !std::all_of(text.begin(), text.end(), is_digit)) return false;
    for (const char c : text) number = 10 * number + static_cast<uint64_t>(c - '0');
    return number <= most;
}

int hex_of(char c) {
    if (is_digit(c)) return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool unescape(std::string_view text, std::string &out) {
    out.reserve(text.size()); // no copies that stay behind
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        if (text.size() - i < 3) return false;
        const int high = hex_of(text[i + 1]), low = hex_of(text[i + 2]);
        if (high < 0 || low < 0) return false;
        out += static_cast<char>(16 * high + low);
        i += 2;
    }
    return true;
}

bool is_host(std::string_view host) {
    if (host.empty() || host.size() > longest_host) return false;
    return std::all_of(host.begin(), host.end(), [](char c) {
        return is_digit(c) || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || c == '_';
    });
}

bool is_v6(const std::string &host) {
    in6_addr address;
    return inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

/// "host", "host:port", "[address]:port" ... into host and the text behind it.
bool split_host(std::string_view text, std::string &host, std::string_view &rest) {
    size_t end;
    if (!text.empty() && text.front() == '[') {
        end = text.find(']');
        if (end == std::string_view::npos) return false;
        host = text.substr(1, end - 1);
        rest = text.substr(end + 1);
        return is_v6(host);
    }
    end = std::min(text.find(':'), text.size());
    host = text.substr(0, end);
    rest = text.substr(end);
    std::transform(host.begin(), host.end(), host.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
    return is_host(host);
}

pkv_status parse_server(std::string_view text, size_t number, Server &server) {
    const auto bad = [number](const char *what) {
        return fail(PKV_ERR_INVALID, "directory: endpoint %zu: %s", number, what);
    };
    static constexpr std::string_view plain = "redis://", secure = "rediss://";
    if (text.starts_with(secure)) {
        server.tls = true;
        text.remove_prefix(secure.size());
    } else if (text.starts_with(plain)) {
        text.remove_prefix(plain.size());
    } else {
        return bad("it begins with neither redis:// nor rediss://");
    }
    if (const size_t at = text.rfind('@'); at != std::string_view::npos) {
        const std::string_view who = text.substr(0, at);
        const size_t colon = who.find(':');
        if (colon == std::string_view::npos) return bad("a user without :password");
        if (!unescape(who.substr(0, colon), server.user) || !unescape(who.substr(colon + 1), server.password))
            return bad("a % in user or password without two hexadecimal digits behind it");
        if (server.password.empty()) return bad("an empty password");
        text.remove_prefix(at + 1);
    }
    uint64_t number_read = 0;
    if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
        const std::string_view database = text.substr(slash + 1);
        if (!database.empty() && !read_number(database, most_databases, number_read))
            return bad("what follows host and port is no database number");
        server.database = static_cast<uint32_t>(number_read);
        text = text.substr(0, slash);
    }
    std::string_view rest;
    if (!split_host(text, server.host, rest)) return bad("no host, or none that can be one");
    number_read = usual_port;
    if (!rest.empty() && (rest.front() != ':' || !read_number(rest.substr(1), 65535, number_read) || number_read == 0))
        return bad("no port between 1 and 65535");
    server.port = static_cast<uint16_t>(number_read);
    server.label = (is_v6(server.host) ? '[' + server.host + ']' : server.host) + ':' + std::to_string(server.port);
    if (server.database != 0) server.label += '/' + std::to_string(server.database);
    return PKV_OK;
}

/// An address that is one machine's.
bool is_unicast(const sockaddr *address) {
    if (address->sa_family == AF_INET) {
        sockaddr_in v4;
        std::memcpy(&v4, address, sizeof v4);
        const uint32_t value = ntohl(v4.sin_addr.s_addr);
        return value >> 24 != 0 && value >> 28 != 0xE && value != INADDR_BROADCAST;
    }
    if (address->sa_family != AF_INET6) return false;
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof v6);
    return v6.sin6_scope_id == 0 && !IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr) && !IN6_IS_ADDR_MULTICAST(&v6.sin6_addr) &&
           !IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) && !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
}

std::string text_of(const sockaddr *address, uint16_t port) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET) {
        sockaddr_in v4;
        std::memcpy(&v4, address, sizeof v4);
        inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
        return std::string(text) + ':' + std::to_string(port);
    }
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof v6);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return '[' + std::string(text) + "]:" + std::to_string(port);
}

/// Resolves; `numeric` takes addresses only, and does not wait.
int look_up(const std::string &host, bool numeric, std::unique_ptr<addrinfo, void (*)(addrinfo *)> &list) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = numeric ? AI_NUMERICHOST : 0;
    addrinfo *found = nullptr;
    const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (error == 0) list.reset(found);
    return error;
}

} // namespace

Server::~Server() {
    sodium_memzero(password.data(), password.size());
    sodium_memzero(user.data(), user.size());
}

pkv_status parse_servers(std::string_view text, Servers &servers) {
    if (text.size() > longest_text)
        return fail(PKV_ERR_LIMIT, "directory has %zu bytes, more than %zu", text.size(), longest_text);
    Servers parsed;
    for (size_t number = 0;; ++number) {
        if (number == most_servers) return fail(PKV_ERR_LIMIT, "directory names more than %zu endpoints", most_servers);
        const size_t comma = std::min(text.find(','), text.size());
        const auto server = std::make_shared<Server>();
        PKV_TRY(parse_server(text.substr(0, comma), number, *server));
        for (const auto &other : parsed)
            if (other->label == server->label)
                return fail(PKV_ERR_INVALID, "directory names %s twice", server->label.c_str());
        parsed.push_back(server);
        if (comma == text.size()) break;
        text.remove_prefix(comma + 1);
    }
    servers = std::move(parsed);
    return PKV_OK;
}

bool is_node_address(std::string_view text) {
    if (text.empty() || text.size() > longest_node_address) return false;
    std::string host;
    std::string_view rest;
    uint64_t port = 0;
    if (!split_host(text, host, rest) || rest.empty() || rest.front() != ':' ||
        !read_number(rest.substr(1), 65535, port) || port == 0)
        return false;
    std::unique_ptr<addrinfo, void (*)(addrinfo *)> list(nullptr, freeaddrinfo);
    if (look_up(host, true, list) != 0) return false;
    return is_unicast(list->ai_addr) && text_of(list->ai_addr, static_cast<uint16_t>(port)) == text;
}

pkv_status make_node_address(const std::string &text, const std::string &listens, std::string &address) {
    std::string host;
    std::string_view rest;
    uint64_t given = 0, own = 0;
    if (!split_host(text, host, rest) || rest.empty() || rest.front() != ':' ||
        !read_number(rest.substr(1), 65535, given))
        return fail(PKV_ERR_INVALID, "advertise is \"%s\", not of the form host:port", text.c_str());
    std::unique_ptr<addrinfo, void (*)(addrinfo *)> list(nullptr, freeaddrinfo);
    if (const int error = look_up(host, false, list))
        return fail(PKV_ERR_IO, "advertise: %s: %s", host.c_str(), gai_strerror(error));
    (void)read_number(std::string_view(listens).substr(listens.rfind(':') + 1), 65535, own);
    const int family = listens.starts_with('[') ? AF_INET6 : AF_INET;
    const addrinfo *best = nullptr;
    for (const addrinfo *at = list.get(); at != nullptr; at = at->ai_next)
        if (is_unicast(at->ai_addr) && (best == nullptr || (best->ai_family != family && at->ai_family == family)))
            best = at;
    if (best == nullptr)
        return fail(PKV_ERR_INVALID, "others cannot connect to \"%s\": name an address of this machine in advertise",
                    text.c_str());
    address = text_of(best->ai_addr, static_cast<uint16_t>(given != 0 ? given : own));
    return PKV_OK;
}

} // namespace pkv::directory
