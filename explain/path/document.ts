/**
 * The description of what `sealane explain` answers: the types here, docs/schemas/explain.json and the documents of
 * `-o json|yaml` follow from it. Fields may be added; those that are there never change their meaning.
 */
import { z } from 'zod'
import { PROBE_DOCUMENT } from './packet-probe.ts'
import { OUTCOMES, STATIONS } from './stations.ts'

export { OUTCOMES, type Outcome, STATIONS, type Station } from './stations.ts'

const text = z.string()
const count = z.int().min(0)

const tuple = z
  .object({
    protocol: z.enum(['tcp', 'udp']),
    source: text.describe('Address of the sender; absent if it is not known.').optional(),
    destination: text.describe('Address of the receiver; absent if it is not known.').optional(),
    port: count.max(65_535).describe('Port of the receiver; absent if none was named.').optional(),
  })
  .describe('A packet at one place of its way.')

const step = z
  .object({
    seq: count.min(1).describe('Number of the step, from 1.'),
    way: text.describe('The exporting cluster whose way this step is on; absent before the ways part.').optional(),
    direction: z.enum(['forward', 'return']),
    station: z.enum(STATIONS),
    cluster: text.describe('Id of the cluster in which it happens.'),
    node: text.describe('Node, or nodes of which one carries the packet.').optional(),
    component: text.describe('The part of Sealane or of the platform that acts.'),
    object: text.describe('The object that decides.'),
    input: tuple.optional(),
    output: tuple.optional(),
    decision: z
      .enum(['passes', 'partly', 'unknown', 'follows', 'fails'])
      .describe(
        'partly: some packets pass. unknown: it could not be asked. follows: an effect whose cause is a later step.',
      ),
    reason: text.describe('Reason code, from docs/troubleshooting.md.').optional(),
    message: text,
    notes: z.array(text).describe('What else is known about the station.'),
    evidence: z
      .enum(['configured', 'computed', 'observed'])
      .describe('configured: an object says it. computed: a function decided. observed: a probe or a process saw it.'),
    source: text.describe('Where the fact comes from.'),
    ageSeconds: count.describe('Age of the fact when the answer was made.'),
    next: text.describe('The command to run if this step is not as expected.').optional(),
    nextAt: text.describe('Id of the cluster in which to run it; absent if that is the one of the caller.').optional(),
    probe: z
      .enum(['passed', 'ended'])
      .describe('What became of the packets of --probe here; absent if that was not seen.')
      .optional(),
  })
  .describe('One step of the way.')

const failing = z
  .object({ seq: count, station: z.enum(STATIONS), reason: text.optional(), message: text })
  .describe('The first step that fails.')

const way = z.object({
  cluster: text.describe('The cluster to which this way leads.'),
  share: count.max(10_000).describe('Its share of new connections in 1/10,000; absent for an address.').optional(),
  outcome: z.enum(OUTCOMES),
  failing: failing.optional(),
})

export const PATH_DOCUMENT = z
  .object({
    format: z.literal(1),
    takenAt: text.describe('When the facts were gathered, RFC 3339.'),
    from: text,
    to: text,
    outcome: z.enum(OUTCOMES),
    message: text,
    failing: failing.optional().describe('The first step that fails; present exactly if the outcome is UNREACHABLE.'),
    next: text.describe('The command to run next.').optional(),
    nextAt: text.describe('Id of the cluster in which to run it; absent if that is the one of the caller.').optional(),
    ways: z.array(way).describe('One for each cluster that may get the call, the largest share first.'),
    waysLeftOut: count.describe(
      'Number of further clusters that may get the call. Their ways count in the outcome, and are not listed.',
    ),
    steps: z.array(step),
    asked: z
      .array(
        z.object({
          option: text.describe('The option that named it.').optional(),
          cluster: text.describe('Its id; - if it could not be read.'),
          isOnWay: z.boolean().describe('False: no step is in it, and the answer does not depend on it.'),
        }),
      )
      .describe('The other members that were asked.'),
    notAsked: z.array(text).describe('What could not be asked.'),
    probe: PROBE_DOCUMENT.optional(),
  })
  .describe('Answer of sealane explain.')

export type PacketTuple = z.infer<typeof tuple>
export type PathStep = z.infer<typeof step>
export type PathWay = z.infer<typeof way>
export type PathExplanation = z.infer<typeof PATH_DOCUMENT>

/** The published JSON schema of the document. */
export function pathSchema(): object {
  return z.toJSONSchema(PATH_DOCUMENT, { io: 'input' })
}
