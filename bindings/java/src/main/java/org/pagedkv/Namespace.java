/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.charset.StandardCharsets;
import org.pagedkv.internal.namespace;

/** What else decides whether KV may be reused, besides the tokens; each part is kept apart from the others. */
public final class Namespace {
    private byte[] model;
    private byte[] adapter;
    private byte[] salt;
    private long adapterId;
    private long adapterGeneration;

    /** Identity of model and weights. */
    public Namespace model(byte[] model) {
        this.model = model.clone();
        return this;
    }

    /** The same, as text (UTF-8). */
    public Namespace model(String model) {
        return model(model.getBytes(StandardCharsets.UTF_8));
    }

    /** Name of the adapter. */
    public Namespace adapter(byte[] adapter) {
        this.adapter = adapter.clone();
        return this;
    }

    /** The same, as text (UTF-8). */
    public Namespace adapter(String adapter) {
        return adapter(adapter.getBytes(StandardCharsets.UTF_8));
    }

    /** Tenant. */
    public Namespace salt(byte[] salt) {
        this.salt = salt.clone();
        return this;
    }

    /** The same, as text (UTF-8). */
    public Namespace salt(String salt) {
        return salt(salt.getBytes(StandardCharsets.UTF_8));
    }

    public Namespace adapterId(long adapterId) {
        this.adapterId = adapterId;
        return this;
    }

    /** To be raised when an adapter is loaded again under its name. */
    public Namespace adapterGeneration(long adapterGeneration) {
        this.adapterGeneration = adapterGeneration;
        return this;
    }

    /* null for null; to be closed */
    static namespace open(Namespace from) {
        if (from == null) {
            return null;
        }
        namespace to = new namespace();
        try {
            to.set_model(from.model);
            to.set_adapter(from.adapter);
            to.set_salt(from.salt);
            to.setAdapter_id(from.adapterId);
            to.setAdapter_generation(from.adapterGeneration);
            return to;
        } catch (RuntimeException e) {
            to.close();
            throw e;
        }
    }
}
