/**
 * Reads the reports of the parts that share a node's network. Their status pages listen on its loopback, so only a
 * command on that node can read them.
 */
import { type Fact, readReport } from '../../../explain/facts/facts.ts'
import { STATUS_PORTS } from '../../../install/values/values.ts'
import { textOfPage } from '../ask.ts'

export const NODE_PARTS = ['gateway', 'routeagent'] as const

const PAGE_MS = 2000
const MAX_PAGE = 1 << 16

/**
 * A part that does not answer yields no fact, because its object, or the lack of it, shows that. Rejects only with the
 * signal's reason.
 */
export async function nodePages(signal: AbortSignal): Promise<readonly Fact[]> {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(PAGE_MS)])
  const pages = NODE_PARTS.map(async (part): Promise<readonly Fact[]> => {
    try {
      const text = await textOfPage(`127.0.0.1:${STATUS_PORTS[part]}`, '/status', MAX_PAGE, limited)
      const said = JSON.parse(text) as { readonly part?: unknown } | null
      // Another program may listen there.
      if (said?.part !== part) return []
      return [readReport(said, { name: part, source: `the ${part} of this machine`, at: new Date() })]
    } catch {
      signal.throwIfAborted()
      return []
    }
  })
  return (await Promise.all(pages)).flat()
}
