/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.offer_options;

/** How a sequence is offered: pkv_offer_options (node.h). */
public final class OfferOptions {
    /** As {@link #maxPulls}: any number of times. */
    public static final int UNLIMITED = -1;

    private long numTokens;
    private long lifetimeNs;
    private String address;
    private int maxPulls;

    /** 0 = those that are committed; more: those that are named already, whose rows come as {@link Offer#ready} says. */
    public OfferOptions numTokens(long numTokens) {
        this.numTokens = numTokens;
        return this;
    }

    /** Of the ticket, in nanoseconds; 0 = 60 seconds. */
    public OfferOptions lifetimeNs(long lifetimeNs) {
        this.lifetimeNs = lifetimeNs;
        return this;
    }

    /** "host:port" at which the puller reaches the node; without it what the node advertises, or listens at. */
    public OfferOptions address(String address) {
        this.address = address;
        return this;
    }

    /** After so many pulls that went well the offer has ended; 0 = 1, {@link #UNLIMITED}. */
    public OfferOptions maxPulls(int maxPulls) {
        this.maxPulls = maxPulls;
        return this;
    }

    static offer_options open(OfferOptions from) {
        if (from == null) {
            return null;
        }
        offer_options to = new offer_options();
        to.setNum_tokens(from.numTokens);
        to.setLifetime_ns(from.lifetimeNs);
        to.setMax_pulls(Bytes.unsigned(from.maxPulls));
        try {
            if (from.address != null) {
                to.set_address(Bytes.text(from.address));
            }
            return to;
        } catch (RuntimeException e) {
            to.close();
            throw e;
        }
    }
}
