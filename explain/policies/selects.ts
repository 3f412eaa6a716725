/** Whether a label selector is about a pod, also where only some of its labels are known. Pure. */
import type { LabelSelector } from '../facts/shapes.ts'

/** maybe: that depends on labels that are not known. */
export type Selected = 'yes' | 'maybe' | 'no'

export interface KnownLabels {
  readonly labels: Readonly<Record<string, string>>
  /** The pod has no others. */
  readonly isWhole: boolean
}

/** An empty selector is about every pod. */
export function selects(selector: LabelSelector | null | undefined, known: KnownLabels): Selected {
  const { matchLabels, matchExpressions } = selector ?? {}
  const answers = [
    ...Object.entries(matchLabels ?? {}).map(([key, value]) =>
      meetsRequirement({ key, operator: 'In', values: [value] }, known),
    ),
    ...(matchExpressions ?? []).map((one) => meetsRequirement(one, known)),
  ]
  if (answers.includes('no')) return 'no'
  return answers.includes('maybe') ? 'maybe' : 'yes'
}

/** It asks for nothing. */
export function selectsAll(selector: LabelSelector | null | undefined): boolean {
  return Object.keys(selector?.matchLabels ?? {}).length === 0 && (selector?.matchExpressions ?? []).length === 0
}

interface Requirement {
  readonly key: string
  readonly operator: string
  readonly values?: readonly string[] | null | undefined
}

/** A pod without the label is in no set of values, and so meets NotIn. */
function meetsRequirement({ key, operator, values }: Requirement, { labels, isWhole }: KnownLabels): Selected {
  const value = Object.hasOwn(labels, key) ? labels[key] : undefined
  if (value === undefined && !isWhole) return 'maybe'
  const isIn = value !== undefined && (values ?? []).includes(value)
  switch (operator) {
    case 'In':
      return isIn ? 'yes' : 'no'
    case 'NotIn':
      return isIn ? 'no' : 'yes'
    case 'Exists':
      return value === undefined ? 'no' : 'yes'
    case 'DoesNotExist':
      return value === undefined ? 'yes' : 'no'
    default:
      return 'maybe'
  }
}
