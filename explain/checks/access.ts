/** What the API server does not let parts of this cluster do: the cause of much that they do not report any more. */
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

/** So many are named; the others are counted. */
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

/** No role of the agent lets it create a Secret, so it tries that only where its own is gone. */
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
    return `the ${part} may not ${object.what}${by}`
  })
  return { reason, severity: 'degraded', seen: named(texts, MOST_NAMED), ...at, ...about }
}

/** What could not be asked, or not be read: who does not know is not well. */
export function unanswered({ unanswered, malformed, probes }: World): readonly Finding[] {
  return [
    ...unanswered.map(({ what, reason, message, needed, source, at }): Finding => {
      return {
        reason,
        // Without its kind nothing of it is left.
        severity: !needed ? 'notice' : reason === 'KindMissing' ? 'down' : 'degraded',
        subject: subjectOfQuestion(what),
        seen: message,
        source,
        at,
        because: [
          ...becauseOf(what),
          ...(reason === 'NothingRuns' ? STARTS_NOT : []),
          // Who looked at the disk itself says how full it is.
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

/** A process does not begin with such settings, and says so itself. */
const STARTS_NOT: readonly Cause[] = [{ reason: 'DnsLoop' }]

function fullDisk(node: string): Cause {
  return { reason: 'DiskFull', subject: { kind: 'Node', name: node } }
}

/** `pod sealane-agent-x2x1k`: the first word is the kind. */
function subjectOfQuestion(what: string): Finding['subject'] {
  const space = what.indexOf(' ')
  return space < 0 ? { kind: what, name: '*' } : { kind: what.slice(0, space), name: what.slice(space + 1) }
}

/** A pod that is not ready does not answer either. */
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
