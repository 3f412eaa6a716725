/** What could not be asked, or not be read: who does not know is not well. */
import type { Cause, Finding } from '../../finding.ts'
import type { World } from '../../world.ts'

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
