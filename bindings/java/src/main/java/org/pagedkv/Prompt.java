/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.util.ArrayList;
import java.util.List;
import org.pagedkv.internal.namespace;
import org.pagedkv.internal.prompt;

/** Tokens of a request, and what else decides its keys. The array is not copied until a call uses it. */
public final class Prompt {
    private record Media(long position, long numTokens, byte[] digest) {}

    private final int[] tokens;
    private final List<Media> media = new ArrayList<>();
    private Namespace namespace;

    private Prompt(int[] tokens) {
        this.tokens = tokens;
    }

    public static Prompt of(int... tokens) {
        return new Prompt(tokens);
    }

    public Prompt namespace(Namespace namespace) {
        this.namespace = namespace;
        return this;
    }

    /**
     * An image or other input behind placeholder tokens; in order of position.
     *
     * @param digest 1 .. 256 bytes: {@link PagedKv#digest}
     */
    public Prompt media(long position, long numTokens, byte[] digest) {
        media.add(new Media(position, numTokens, digest.clone()));
        return this;
    }

    /* to be closed */
    prompt open() {
        prompt to = new prompt();
        try (namespace ns = Namespace.open(namespace)) {
            if (ns != null) {
                to.set_ns(ns);
            }
            to.set_tokens(tokens, tokens.length);
            for (Media m : media) {
                to.add_media(m.position, m.numTokens, m.digest);
            }
            return to;
        } catch (RuntimeException e) {
            to.close();
            throw e;
        }
    }
}
