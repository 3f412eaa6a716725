/** The body of a watch: one JSON object in each line. */

/** An object in etcd has at most 1.5 MB; as JSON, with old and new side by side in no event, this is plenty. */
const MAX_LINE = 8 << 20

/** Gives each line once it is whole. Throws Error when one does not end. */
export async function* lines(body: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let parts: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    let start = 0
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      const last = chunk.subarray(start, end)
      const line = parts.length === 0 ? last : Buffer.concat([...parts, last])
      parts = []
      size = 0
      start = end + 1
      if (line.length > 0) yield line.toString()
    }
    if (start === chunk.length) continue
    parts.push(chunk.subarray(start))
    size += chunk.length - start
    if (size > MAX_LINE) throw new Error(`a line of the watch is longer than ${MAX_LINE} bytes`)
  }
}
