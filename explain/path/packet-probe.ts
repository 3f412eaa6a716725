/**
 * The probe of `sealane explain --probe`: what a machine is asked to send and follow, what it says about it, and what the
 * document says about it. Another release, or another program, may have written a report: all of it has bounds.
 */
import { z } from 'zod'
import { isAddress } from '../../model/addresses/addresses.ts'
import { OUTCOMES, PROBE_RESULTS, STATIONS } from './stations.ts'

/** The most packets that one probe sends, and how long it waits for an answer. */
export const PROBE_PACKETS = 10
export const PROBE_SECONDS = 5
/** How long a machine may be asked to follow packets. */
export const MOST_TRACE_SECONDS = 20

export const MOST_SOURCES = 16
export const MOST_DESTINATIONS = 256
export const MOST_PORTS = 64
const MOST_LINES = 2000
const MOST_COUNTERS = 256

const short = z.string().max(160)
const text = z.string().max(400)
const address = z.string().max(45).refine(isAddress)
const port = z.int().min(1).max(65_535)
const count = z.int().min(0)

/** What one machine does. */
export const PROBE_TASK = z.object({
  family: z.union([z.literal(4), z.literal(6)]),
  protocol: z.enum(['tcp', 'udp']),
  sourcePort: port,
  /** Empty: packets of any sender with the source port. */
  sources: z.array(address).max(MOST_SOURCES),
  destinations: z.array(address).min(1).max(MOST_DESTINATIONS),
  ports: z.array(port).min(1).max(MOST_PORTS),
  seconds: z.int().min(1).max(MOST_TRACE_SECONDS),
  /** Also counters of tables, which may be costly. A machine that sends packets reads them in any case. */
  counts: z.boolean().optional(),
  /** Absent: the machine only follows packets. */
  send: z.object({ to: address, port, source: address.optional() }).optional(),
})

const packet = z.object({
  inDevice: short.optional(),
  outDevice: short.optional(),
  protocol: short.optional(),
  source: short.optional(),
  destination: short.optional(),
  sourcePort: count.optional(),
  port: count.optional(),
})

const line = z.object({
  id: short,
  family: short,
  table: short,
  chain: short,
  what: z.enum(['packet', 'rule', 'policy', 'return']),
  packet: packet.optional(),
  rule: text.optional(),
  action: short.optional(),
  to: short.optional(),
})

const counter = z.object({
  name: short.describe('The table and the counter, or a device.'),
  before: count,
  after: count,
})

const sent = z.object({
  result: z.enum(PROBE_RESULTS),
  message: text,
  source: short.optional(),
  ms: z.number().min(0).optional(),
})

/** What one machine saw. */
export const PROBE_REPORT = z.object({
  at: short,
  sent: sent.optional(),
  /** Why no packet was followed. */
  problem: text.optional(),
  lines: z.array(line).max(MOST_LINES),
  leftOut: count,
  /** Those that grew meanwhile. */
  counters: z.array(counter).max(MOST_COUNTERS),
})

export type ProbeTask = z.infer<typeof PROBE_TASK>
export type ProbeReport = z.infer<typeof PROBE_REPORT>
export type ProbeLine = z.infer<typeof line>

const end = z
  .object({
    seq: count.describe('The step at which it is; absent if no step is there.').optional(),
    direction: z.enum(['forward', 'return']),
    station: z.enum(STATIONS),
    cluster: text,
    node: text.optional(),
    family: text.describe('Address family of the table.').optional(),
    table: text.optional(),
    chain: text.optional(),
    rule: text.describe('The rule that ended the packet, as nft prints it.').optional(),
    reason: text.describe('Reason code, from docs/troubleshooting.md.').optional(),
    message: text,
    isExact: z.boolean().describe('False: it ends here or at a later place that could not be asked.'),
  })
  .describe('Where the packets end.')

const place = z.object({
  cluster: text,
  node: text.optional(),
  source: text.describe('What was asked: this machine, or a pod.'),
  at: text.describe('When it answered, RFC 3339; absent if it could not be asked.').optional(),
  ageSeconds: count.optional(),
  requests: count.describe('Packets of the probe that were followed there.'),
  answers: count.describe('Packets of the answer that were followed there.'),
  leftOut: count.describe('Lines of the trace that were not kept; then packets may be missing here.'),
  passed: z.array(text).describe('Chains and devices that the last packet passed.'),
  counters: z.array(counter).describe('Counters of our tables and devices that grew meanwhile.'),
  notAsked: text.describe('Why nothing is known of it.').optional(),
})

export const PROBE_DOCUMENT = z
  .object({
    by: text.describe('What sent the packets, and how it was reached.'),
    isStandIn: z.boolean().describe('True: not the caller has sent them, and rules may treat the two differently.'),
    protocol: z.enum(['tcp', 'udp']),
    source: text.optional(),
    sourcePort: count.describe('0 if no packet could be sent; so also the port.'),
    destination: text,
    port: count,
    isCut: z.boolean().describe('True: not all addresses of the called end could be followed.'),
    result: z.enum(PROBE_RESULTS),
    outcome: z.enum(OUTCOMES),
    message: text,
    ms: z.number().min(0).describe('Time until the answer.').optional(),
    cluster: text.describe('The cluster that got the packets; absent if it is not known.').optional(),
    end: end.optional(),
    places: z.array(place),
  })
  .describe('What became of real packets; present with --probe.')

export type ProbeDocument = z.infer<typeof PROBE_DOCUMENT>
export type ProbeEnd = z.infer<typeof end>
