/** metav1.Condition with the validation that Kubernetes' own types carry; a map list keyed by type. */
import type { Schema } from './schema.ts'

const REASON = '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'
const TYPE =
  '^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$'

export const CONDITIONS: Schema = {
  description: 'What holds now, one entry per type.',
  type: 'array',
  items: {
    description: 'One fact about this object, who found it and since when.',
    type: 'object',
    properties: {
      lastTransitionTime: { description: 'When status last changed.', type: 'string', format: 'date-time' },
      message: { description: 'The same for people; may be empty.', type: 'string', maxLength: 32_768 },
      observedGeneration: {
        description: 'The metadata.generation that was looked at. Older than the present one: not judged yet.',
        type: 'integer',
        format: 'int64',
        minimum: 0,
      },
      reason: {
        description: 'Why, in CamelCase; several are joined with commas.',
        type: 'string',
        minLength: 1,
        maxLength: 1024,
        pattern: REASON,
      },
      status: { description: 'Whether it holds.', type: 'string', enum: ['True', 'False', 'Unknown'] },
      type: { description: 'Which fact this is, in CamelCase.', type: 'string', maxLength: 316, pattern: TYPE },
    },
    required: ['lastTransitionTime', 'message', 'reason', 'status', 'type'],
  },
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['type'],
}
