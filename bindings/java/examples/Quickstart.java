/* SPDX-License-Identifier: Apache-2.0 */
/* Two requests that share a prefix, and a fork of the second: the smallest tour of the library. */
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.pagedkv.DType;
import org.pagedkv.GroupOptions;
import org.pagedkv.Match;
import org.pagedkv.Pool;
import org.pagedkv.PoolOptions;
import org.pagedkv.PoolStats;
import org.pagedkv.Prompt;
import org.pagedkv.Rows;
import org.pagedkv.Table;

public final class Quickstart {
    private static final int LAYERS = 2;
    private static final int HEADS = 2;
    private static final int HEAD_DIM = 4;
    private static final int ROW = HEADS * HEAD_DIM;
    private static final int PROMPT = 40;
    private static final int TOTAL = PROMPT + 1;

    private static final ByteBuffer K = ByteBuffer.allocateDirect(TOTAL * ROW * 4).order(ByteOrder.nativeOrder());
    private static final ByteBuffer V = ByteBuffer.allocateDirect(TOTAL * ROW * 4).order(ByteOrder.nativeOrder());

    private Quickstart() {}

    /* Stands in for the model: element i of K of one token in one layer; V is its negative. */
    private static float model(int[] tokens, int token, int layer, int i) {
        return tokens[token] * 16 + layer * 8 + i;
    }

    /* Computes tokens [first, end) of a sequence, in all layers, and says that they are complete. */
    private static void compute(Table table, int[] tokens, int first, int end) {
        for (int layer = 0; layer < LAYERS; ++layer) {
            for (int t = first; t < end; ++t) {
                for (int i = 0; i < ROW; ++i) {
                    K.putFloat(((t - first) * ROW + i) * 4, model(tokens, t, layer, i));
                    V.putFloat(((t - first) * ROW + i) * 4, -model(tokens, t, layer, i));
                }
            }
            table.write(0, layer, first, end - first, Rows.of(K, DType.F32, end - first), Rows.of(V, DType.F32, end - first));
        }
        table.commit(end);
    }

    /* Takes tokens [0, end) out again and compares every element. */
    private static int verify(Table table, int[] tokens, int end) {
        for (int layer = 0; layer < LAYERS; ++layer) {
            table.gather(0, layer, 0, end, Rows.of(K, DType.F32, end), Rows.of(V, DType.F32, end));
            for (int t = 0; t < end; ++t) {
                for (int i = 0; i < ROW; ++i) {
                    float wanted = model(tokens, t, layer, i);
                    if (K.getFloat((t * ROW + i) * 4) != wanted || V.getFloat((t * ROW + i) * 4) != -wanted) {
                        throw new AssertionError("token " + t + " of layer " + layer + " has other bytes than were written");
                    }
                }
            }
        }
        return end;
    }

    public static void main(String[] args) {
        int[][] tokens = new int[3][TOTAL]; // of request 1, of request 2, of its fork
        for (int t = 0; t < TOTAL; ++t) {
            tokens[0][t] = 1000 + t;
            tokens[1][t] = t < 35 ? tokens[0][t] : 2000 + t; // the same system prompt, then another question
            tokens[2][t] = tokens[1][t];
        }

        GroupOptions group = new GroupOptions() // the model: 2 layers, 2 KV heads of 4 floats
                .numPages(64).numLayers(LAYERS).numKvHeads(HEADS).kHeadDim(HEAD_DIM).vHeadDim(HEAD_DIM).dtype(DType.F32);
        try (Pool pool = new Pool(new PoolOptions().pageTokens(16).group(group));
                Table one = pool.table();
                Table two = pool.table()) {
            Table[] tables = {one, two};
            for (int i = 0; i < 2; ++i) {
                Match match = tables[i].admit(Prompt.of(Arrays.copyOf(tokens[i], PROMPT))); // takes what is cached
                System.out.printf("request %d: %d of %d tokens came from the cache%n", i + 1, match.tokens(), PROMPT);
                compute(tables[i], tokens[i], (int) match.tokens(), PROMPT);
            }
            try (Table fork = two.fork()) { // another answer to request 2: all pages are shared
                fork.reserve(TOTAL); // room for a token: the last block becomes private
                fork.setTokens(PROMPT, tokens[2][PROMPT]);
                compute(fork, tokens[2], PROMPT, TOTAL);
                System.out.printf("table 1: %d tokens, every byte as written%n", verify(one, tokens[0], PROMPT));
                System.out.printf("table 2: %d tokens, every byte as written%n", verify(two, tokens[1], PROMPT));
                System.out.printf("table 3: %d tokens, every byte as written%n", verify(fork, tokens[2], TOTAL));
                PoolStats stats = pool.stats(0);
                System.out.printf("pool: 3 tables of 3 blocks hold %d pages; %d page was copied for the fork%n", stats.heldPages(),
                        stats.copiedPages());
            }
        }
    }
}
