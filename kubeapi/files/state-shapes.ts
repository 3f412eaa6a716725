/**
 * What the state's files must look like before they are believed: the fields that the components go by. Sealane
 * wrote them, but a disk or a hand may have spoilt them since, and no process may end over that.
 */
import type { Kind } from '../../model/objects.ts'
import { complaintOf, integer, map, text, textMap } from './fields.ts'
import { SPEC_SHAPES, STATUS_SHAPES } from './object-shapes.ts'

/** `object`: what apply() was given; `status`; `user`: what is known of a user's object beyond its YAML. */
export type StatePart = 'object' | 'status' | 'user'

const count = integer(0, Number.MAX_SAFE_INTEGER)
const metadata = map({ name: text, namespace: text.optional(), labels: textMap.optional() })
const base = map({ kind: text, metadata })
const note = map({ uid: text, creationTimestamp: text, generation: count, specHash: text })
const anyStatus = map({ uid: text })
const STORED_STATUSES = new Map(
  Object.entries(STATUS_SHAPES).map(([kind, status]) => [kind, map({ uid: text, status: status.optional() })]),
)

/** What is wrong with the value of a state file, naming the field and what was expected; undefined: nothing. */
export function shapeComplaint(kind: Kind, part: StatePart, value: object): string | undefined {
  if (part === 'user') return complaintOf(note, value)
  if (part === 'status') return complaintOf(STORED_STATUSES.get(kind) ?? anyStatus, value)
  const complaint = complaintOf(base, value)
  if (complaint !== undefined) return complaint
  if ((value as { kind: string }).kind !== kind) return `kind: expected ${kind}`
  const spec = SPEC_SHAPES[kind]
  return spec === undefined ? undefined : complaintOf(spec, value)
}
