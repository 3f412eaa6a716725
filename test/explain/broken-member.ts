/** A healthy member with one thing broken, and its findings as lines. */
import { type RankedFinding, subjectText } from '../../explain/facts/finding.ts'
import { type HealthyInit, type ObjectsByKind, copyOf, healthyObjects } from '../support/objects/member-facts.ts'

/** An object as JSON, so that tests can write any value. */
export interface Loose {
  metadata: { name: string; namespace?: string; labels?: Record<string, string> }
  spec: Record<string, unknown>
  status: { connections: LooseLink[]; conditions: unknown[]; clusters: { gateways: string[] }[] } & Record<
    string,
    unknown
  >
}
export type LooseLink = { cluster: string; remoteLane: number; lane: number; state: string; message: string } & Record<
  string,
  unknown
>

export const SILENCE =
  'no answer to probes: this gateway sends to UDP 198.51.100.7:4500 and receives nothing: open UDP 4500 at the other gateway'

export function brokenMember(
  change: (at: (kind: keyof ObjectsByKind) => Loose[]) => void,
  init: HealthyInit = {},
): ObjectsByKind {
  const objects = copyOf(healthyObjects(init))
  change((kind) => (objects[kind] ?? []) as Loose[])
  return objects
}

export function changeLinks(
  at: (kind: keyof ObjectsByKind) => Loose[],
  which: (link: LooseLink, node: string) => boolean,
  change: object,
): void {
  for (const { metadata, status } of at('Gateway')) {
    for (const link of status.connections) if (which(link, metadata.name)) Object.assign(link, change)
  }
}

export const DOWN = { state: 'down', message: SILENCE }

export function linesOf(problems: readonly RankedFinding[]): string[] {
  return problems.map(({ severity, reason, subject, consequences }) => {
    const below = consequences.map(({ reason: one, count }) => `${one} ×${count}`)
    return `${severity} ${reason} ${subjectText(subject)}${below.length === 0 ? '' : ` (${below.join(', ')})`}`
  })
}
