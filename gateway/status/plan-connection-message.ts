/** The text for a connection that is not up: which end receives what, and which UDP port somebody has to open. Pure. */
import { formatAddressPort } from '../../model/addresses/address-port.ts'
import type { ConnectionCause, ConnectionState } from '../../model/objects.ts'
import { HEARS_NOTHING } from '../../model/status-text.ts'
import type { LinkState } from '../cable/cable.ts'
import type { EndpointChoice } from '../reach/choose-endpoint.ts'
import type { LaneDoubt } from '../reach/lane-doubt.ts'

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
  /** Why it may never come up, where that is known. */
  readonly doubt?: LaneDoubt
  /** As it is; undefined when it is new. */
  readonly link: LinkState | undefined
  /** UDP port of our own device. */
  readonly listenPort: number
}

/** What came in longer ago than this came before the break: a peer sends a probe or a keepalive more often. */
const HEARD_COUNTS_MS = 5000

/** What a Gateway's status says of a connection that is not up. */
export interface ConnectionTrouble {
  /** One sentence: what is missing since when, what each side sees, and what to open. */
  readonly message: string
  readonly cause?: ConnectionCause
}

export function connectionTrouble(init: ConnectionMessageInit): ConnectionTrouble {
  const { state, forMs, choice } = init
  const what = init.handshakeAgeMs !== undefined ? 'no answer to probes' : 'no handshake yet'
  const since = forMs === undefined || state === 'connecting' ? '' : ` since ${seconds(forMs)}`
  const { message, cause = init.doubt?.cause } = seen(init)
  const doubt = init.doubt === undefined ? '' : `; ${init.doubt.text}`
  return {
    message: `${what}${since}: ${message} (${choice.why})${doubt}`,
    ...(cause === undefined ? {} : { cause }),
  }
}

function seen(init: ConnectionMessageInit): ConnectionTrouble {
  const { heardMs, choice, link, listenPort } = init
  const here = `UDP ${listenPort}`
  const from = link?.at === undefined ? 'it' : `UDP ${formatAddressPort(link.at)}`
  const at = choice.at ?? link?.at
  const there = at === undefined ? 'UDP' : `UDP ${at.port}`
  if (heardMs !== undefined && heardMs <= HEARD_COUNTS_MS) {
    if (hasSession(init)) {
      const mend = `let ${here} in here and ${there} in there, or its gateway hangs`
      return { message: `packets arrive from ${from}, but none that answers ours: ${mend}`, cause: 'NoneAnswers' }
    }
    const mend = `let ${here} out of this node and ${there} into that one`
    return { message: `packets arrive from ${from}, but our answers do not get there: ${mend}`, cause: 'AnswersLost' }
  }
  if (choice.how === 'wait' || at === undefined) {
    const last = heardMs === undefined ? 'nothing has come' : `nothing has come for ${seconds(heardMs)}`
    return { message: `we have no address to send to and ${last}: open ${here} here, for it calls us` }
  }
  const sent = (link?.txBytes ?? 0) > 0 ? 'we send' : 'we begin to send'
  const nothing = `${HEARS_NOTHING}${lastHeard(init)}`
  return { message: `${sent} to UDP ${formatAddressPort(at)} ${nothing}: open UDP ${at.port} there` }
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
