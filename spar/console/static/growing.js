// A list that is read from its beginning, by a growing number of rows: for lists that have no pages.
import { useRef, useState } from "./preact.js";
import { useData } from "./api.js";
import { withQuery } from "./parts.js";

/** Read a list with `size` rows more at each `more`; polled every `seconds`. It is what `Table` takes as `pages`.
 * `by` is the parameter with the number of rows, `most` its largest value. */
export function useGrowing(base, query = {}, { seconds = 0, size = 50, by = "limit", most = 10000 } = {}) {
  const key = withQuery(base, query);
  const [{ of, number }, set] = useState({ of: key, number: size });
  const limit = of === key ? number : size;
  const answer = useData(withQuery(base, { ...query, [by]: Math.min(limit + 1, most) }), seconds);
  const last = useRef({});
  if (answer.data) last.current = { key, rows: answer.data };
  const rows = answer.data || (last.current.key === key ? last.current.rows : []);
  return { ...answer, isLoading: answer.isLoading && !rows.length, rows: rows.slice(0, limit),
    more: rows.length > limit ? async () => set({ of: key, number: limit + size }) : null };
}
