/** metav1.LabelSelector. Pure. */
import type { LabelSelector } from '../model.ts'

type Requirement = NonNullable<LabelSelector['matchExpressions']>[number]

const SELECTOR_FIELDS = ['matchLabels', 'matchExpressions']
const REQUIREMENT_FIELDS = ['key', 'operator', 'values']

/**
 * Whether the labels meet all parts of the selector. A selector that this release does not fully understand, such as one
 * with a field of a later release, matches nothing, because it must not select more than its author meant.
 */
export function matchesLabels(selector: LabelSelector, labels: Readonly<Record<string, string>> = {}): boolean {
  if (!hasOnly(selector, SELECTOR_FIELDS)) return false
  const { matchLabels = {}, matchExpressions = [] } = selector
  return (
    Object.entries(matchLabels).every(([key, value]) => own(labels, key) === value) &&
    matchExpressions.every((one) => meets(one, labels))
  )
}

/** Whether this release understands all of the selector. One that it does not understand matches nothing. */
export function isUnderstoodSelector(selector: LabelSelector): boolean {
  return (
    hasOnly(selector, SELECTOR_FIELDS) &&
    (selector.matchExpressions ?? []).every((requirement) => {
      const { operator, values = [] } = requirement
      if (!hasOnly(requirement, REQUIREMENT_FIELDS)) return false
      if (operator === 'In' || operator === 'NotIn') return values.length > 0
      return ['Exists', 'DoesNotExist'].includes(operator) && values.length === 0
    })
  )
}

function meets(requirement: Requirement, labels: Readonly<Record<string, string>>): boolean {
  if (!hasOnly(requirement, REQUIREMENT_FIELDS)) return false
  const { key, operator, values = [] } = requirement
  const value = own(labels, key)
  switch (operator) {
    case 'In':
      return value !== undefined && values.includes(value)
    case 'NotIn':
      // Kubernetes refuses it without values.
      return values.length > 0 && (value === undefined || !values.includes(value))
    case 'Exists':
      return values.length === 0 && value !== undefined
    case 'DoesNotExist':
      return values.length === 0 && value === undefined
    default:
      return false
  }
}

/** Whether the object has none but these fields. */
export function hasOnly(object: object, fields: readonly string[]): boolean {
  return Object.keys(object).every((field) => fields.includes(field))
}

function own(labels: Readonly<Record<string, string>>, key: string): string | undefined {
  return Object.hasOwn(labels, key) ? labels[key] : undefined
}
