/** Finds what the API server refuses to the parts of this cluster, which explains much that they do not report. */
import {
  API_SERVER,
  type Cause,
  type Finding,
  IDENTITY_SECRET,
  MEMBER_PARTS,
  type MemberPart,
  REFUSED_PART,
  type RefusalReport,
  type Seen,
  type World,
  named,
  seenAt,
  workloadSubject,
} from '../facts/facts.ts'

/** The number of refusals that a message names. The others are counted. */
const MOST_NAMED = 3

type RefusedPart = (typeof REFUSED_PART)[number]

interface Refused {
  readonly part: MemberPart
  readonly seen: Seen<RefusalReport>
}

export function refusals({ reports }: World): readonly Finding[] {
  const all = reports.flatMap(({ object: { part, refused = [] }, source, at }): readonly Refused[] => {
    const known = MEMBER_PARTS.find((one) => one === part)
    return known === undefined ? [] : refused.map((object) => ({ part: known, seen: { object, source, at } }))
  })
  const ofParts = MEMBER_PARTS.flatMap((part) =>
    REFUSED_PART.flatMap((reason) =>
      ofPart(
        reason,
        part,
        all.filter((one) => one.part === part),
      ),
    ),
  )
  return [...readOnly(all), ...identityMissing(all), ...ofParts]
}

/** No role lets the agent create a Secret, so it only tries that if its identity Secret is missing. */
function isAboutIdentity({ part, seen: { object } }: Refused): boolean {
  return part === 'agent' && object.code === 'PartForbidden' && object.what === 'create secrets'
}

function identityMissing(all: readonly Refused[]): readonly Finding[] {
  const found = all.filter(isAboutIdentity)
  return found.length === 0 ? [] : [finding('IdentityMissing', found, { subject: IDENTITY_SECRET })]
}

function ofPart(reason: RefusedPart, part: MemberPart, all: readonly Refused[]): readonly Finding[] {
  const found = all.filter((one) => one.seen.object.code === reason && !isAboutIdentity(one))
  return found.length === 0 ? [] : [finding(reason, found, { subject: workloadSubject(part) })]
}

function readOnly(all: readonly Refused[]): readonly Finding[] {
  const found = all.filter(({ seen }) => seen.object.code === 'ApiServerReadOnly')
  return found.length === 0 ? [] : [finding('ApiServerReadOnly', found, { subject: API_SERVER })]
}

function finding(
  reason: RefusedPart | 'ApiServerReadOnly' | 'IdentityMissing',
  found: readonly Refused[],
  about: Pick<Finding, 'subject'>,
): Finding {
  const [first] = found.map(({ seen }) => seen).sort((a, b) => (a.object.since < b.object.since ? -1 : 1))
  const at = first === undefined ? { source: '-', at: '' } : seenAt(first, first.object.since)
  const texts = found.map(({ part, seen: { object } }) => {
    const by = object.by === undefined ? '' : `, by ${object.by}`
    return `the ${part} is not allowed to ${object.what}${by}`
  })
  return { reason, severity: 'degraded', seen: named(texts, MOST_NAMED), ...at, ...about }
}

/** Questions without a readable answer: an unknown state is not a healthy one. */
export function unanswered({ unanswered, malformed, probes }: World): readonly Finding[] {
  return [
    ...unanswered.map(({ what, reason, message, needed, source, at }): Finding => {
      return {
        reason,
        // Without its CRD, all objects of the kind are gone.
        severity: !needed ? 'notice' : reason === 'KindMissing' ? 'down' : 'degraded',
        subject: subjectOfQuestion(what),
        seen: message,
        source,
        at,
        because: [
          ...becauseOf(what),
          ...(reason === 'NothingRuns' ? STARTS_NOT : []),
          // Host probes check the disk themselves, so they know whether it is full.
          ...(reason === 'DiskFull' ? (probes.host ?? []).map(({ object: { node } }) => fullDisk(node)) : []),
        ],
      }
    }),
    ...malformed.map(({ what, problem, source, at }): Finding => {
      return {
        reason: 'NotReadable',
        severity: 'degraded',
        subject: subjectOfQuestion(what),
        seen: problem,
        source,
        at,
      }
    }),
  ]
}

/** A process refuses to start with such settings, and reports why. */
const STARTS_NOT: readonly Cause[] = [{ reason: 'DnsLoop' }]

function fullDisk(node: string): Cause {
  return { reason: 'DiskFull', subject: { kind: 'Node', name: node } }
}

/** `pod sealane-agent-x2x1k`: the first word is the kind. */
function subjectOfQuestion(what: string): Finding['subject'] {
  const space = what.indexOf(' ')
  return space < 0 ? { kind: what, name: '*' } : { kind: what.slice(0, space), name: what.slice(space + 1) }
}

/** An agent or DNS pod that is not ready does not answer. */
function becauseOf(what: string): Finding['because'] & {} {
  const part = /^Pod (?:[^/]*\/)?sealane-(agent|dns)-/.exec(what)?.[1]
  return part === undefined
    ? []
    : [
        {
          reason: 'PartNotReady',
          subject: { kind: 'Deployment', namespace: 'sealane-system', name: `sealane-${part}` },
        },
      ]
}
