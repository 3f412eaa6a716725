/** metav1.Condition with the validation of Kubernetes' own types, as a map list keyed by type. */
import type { ConditionReason } from '../reasons/reasons.ts'
import { MAX_MESSAGE_LENGTH } from '../values/values.ts'
import { type Described, anyInteger, choice, listOf, map, nameOrNone, relied, text, timestamp } from './fields.ts'

const REASON = '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'
const TYPE =
  '^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$'

const CONDITION = map(
  {
    /** RFC 3339, seconds. */
    lastTransitionTime: timestamp('Time of the last change of status.'),
    message: text('Human-readable explanation of status and reason; may be empty.', { maxLength: MAX_MESSAGE_LENGTH }),
    observedGeneration: anyInteger(
      'int64',
      'The metadata.generation that the condition is based on. If it is older than the current one, the condition is out of date.',
      0,
    ).optional(),
    /**
     * Typed for conditions that we write; other controllers may write other reasons, and in MCS v1alpha1, whose CRD
     * does not require one, '' in the place of none.
     */
    reason: nameOrNone(
      text<ConditionReason>('Reason for the status, in CamelCase; several reasons are separated by commas.', {
        minLength: 1,
        maxLength: 1024,
        pattern: REASON,
      }),
    ),
    status: relied(choice(['True', 'False', 'Unknown'], 'Status of the condition: True, False or Unknown.')),
    type: text('Type of the condition, in CamelCase.', { maxLength: 316, pattern: TYPE }),
  },
  'One aspect of the current state of this object.',
)
export type Condition = Described<typeof CONDITION>

export const CONDITIONS = listOf(CONDITION, {
  description: 'Current conditions, one entry for each type.',
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['type'],
})
