/** metav1.Condition with the validation of Kubernetes' own types, as a map list keyed by type. */
import type { ConditionReason } from '../reasons/reasons.ts'
import { MAX_MESSAGE_LENGTH } from '../values/values.ts'
import { type Described, anyInteger, choice, listOf, map, relied, text, timestamp } from './fields.ts'

const REASON = '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'
const TYPE =
  '^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$'

const CONDITION = map(
  {
    /** RFC 3339, seconds. */
    lastTransitionTime: timestamp('When status last changed.'),
    message: text('The same for people; may be empty.', { maxLength: MAX_MESSAGE_LENGTH }),
    observedGeneration: anyInteger(
      'int64',
      'The metadata.generation that was looked at. Older than the present one: not judged yet.',
      0,
    ).optional(),
    /** Typed for conditions that we write; other controllers may write other reasons. */
    reason: text<ConditionReason>('Why, in CamelCase; several are joined with commas.', {
      minLength: 1,
      maxLength: 1024,
      pattern: REASON,
    }),
    status: relied(choice(['True', 'False', 'Unknown'], 'Whether it holds.')),
    type: text('Which fact this is, in CamelCase.', { maxLength: 316, pattern: TYPE }),
  },
  'One fact about this object, who found it and since when.',
)
export type Condition = Described<typeof CONDITION>

export const CONDITIONS = listOf(CONDITION, {
  description: 'What holds now, one entry per type.',
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['type'],
})
