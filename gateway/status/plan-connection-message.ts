/** The text for a connection that is not up: which end receives what, and which UDP port somebody has to open. Pure. */
import { formatAddressPort } from '../../model/addresses/address-port.ts'
import type { ConnectionState } from '../../model/objects.ts'
import { ANSWERS_LOST, HEARS_NOTHING, NONE_ANSWERS } from '../../model/status-text.ts'
import type { LinkState } from '../cable/cable.ts'
import type { EndpointChoice } from '../reach/choose-endpoint.ts'

export interface ConnectionMessageInit {
  readonly state: Exclude<ConnectionState, 'up'>
  /** Milliseconds since the connection came into this state; absent while its probes have not begun. */
  readonly forMs?: number
  /** Milliseconds since something came in from the peer through its lane; absent where nothing ever did. */
  readonly heardMs?: number
  /** Milliseconds since the last handshake; absent where there was none. */
  readonly handshakeAgeMs?: number
  /** CableRules.sessionMs. */
  readonly sessionMs: number
  readonly choice: EndpointChoice
  /** Why it may never come up, where that is known: `neither end can be called from outside (…)`. */
  readonly doubt?: string
  /** As it is; undefined when it is new. */
  readonly link: LinkState | undefined
  /** UDP port of our own device. */
  readonly listenPort: number
}

/** What came in longer ago than this came before the break: a peer sends a probe or a keepalive more often. */
const HEARD_COUNTS_MS = 5000

/** One sentence for Gateway.status: what is missing since when, what each side sees, and what to open. */
export function connectionMessage(init: ConnectionMessageInit): string {
  const { state, forMs, choice } = init
  const what = init.handshakeAgeMs !== undefined ? 'no answer to probes' : 'no handshake yet'
  const since = forMs === undefined || state === 'connecting' ? '' : ` since ${seconds(forMs)}`
  const doubt = init.doubt === undefined ? '' : `; ${init.doubt}`
  return `${what}${since}: ${seen(init)} (${choice.why})${doubt}`
}

function seen(init: ConnectionMessageInit): string {
  const { heardMs, choice, link, listenPort } = init
  const here = `UDP ${listenPort}`
  const from = link?.at === undefined ? 'it' : `UDP ${formatAddressPort(link.at)}`
  const at = choice.at ?? link?.at
  const there = at === undefined ? 'UDP' : `UDP ${at.port}`
  if (heardMs !== undefined && heardMs <= HEARD_COUNTS_MS) {
    if (hasSession(init)) {
      return `packets arrive from ${from}, ${NONE_ANSWERS}: let ${here} in here and ${there} in there, or its gateway hangs`
    }
    return `packets arrive from ${from}, ${ANSWERS_LOST}: let ${here} out of this node and ${there} into that one`
  }
  if (choice.how === 'wait' || at === undefined) {
    const last = heardMs === undefined ? 'nothing has come' : `nothing has come for ${seconds(heardMs)}`
    return `we have no address to send to and ${last}: open ${here} here, for it calls us`
  }
  const sent = (link?.txBytes ?? 0) > 0 ? 'we send' : 'we begin to send'
  return `${sent} to UDP ${formatAddressPort(at)} ${HEARS_NOTHING}${lastHeard(init)}: open UDP ${at.port} there`
}

/** Both ends took part in a handshake: while it counts, packets got through both ways. */
function hasSession({ handshakeAgeMs = Infinity, sessionMs }: ConnectionMessageInit): boolean {
  return handshakeAgeMs < sessionMs
}

function lastHeard({ heardMs, handshakeAgeMs }: ConnectionMessageInit): string {
  const facts = [
    ...(heardMs === undefined ? [] : [`last heard ${seconds(heardMs)} ago`]),
    ...(handshakeAgeMs === undefined ? [] : [`last handshake ${seconds(handshakeAgeMs)} ago`]),
  ]
  return facts.length === 0 ? '' : ` (${facts.join(', ')})`
}

function seconds(ms: number): string {
  return `${Math.max(0, Math.floor(ms / 1000))} s`
}
