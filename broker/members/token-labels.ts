/**
 * Labels that a join token states. The operator vouches for them, and access policies of other members believe them, so
 * the member changes and removes none of them. Others are its own word. Pure.
 */
import { MAX_CLUSTER_LABELS } from '../../model/values/values.ts'
import { RefusedError } from '../../protocol/protocol.ts'

type Labels = Readonly<Record<string, string>>

/** The labels that count. Throws RefusedError if they are more together than a member may have. */
export function labelsWith(stated: Labels, ofToken: Labels = {}): Labels {
  if (Object.keys(ofToken).length === 0) return stated
  const labels = { ...stated, ...ofToken }
  const count = Object.keys(labels).length
  if (count <= MAX_CLUSTER_LABELS) return labels
  const text = `${count} with those of the join token: expected at most ${MAX_CLUSTER_LABELS}`
  throw new RefusedError('InvalidValue', 'labels', `labels: ${text}`)
}

/** The labels that no token stated. */
export function labelsWithout(labels: Labels, ofToken: Labels = {}): Labels {
  return Object.fromEntries(Object.entries(labels).filter(([key]) => !Object.hasOwn(ofToken, key)))
}

/** The key of a label that the member states otherwise than its token. Undefined if there is none. */
export function fixedLabel(stated: Labels, ofToken: Labels = {}): string | undefined {
  return Object.keys(ofToken).find((key) => Object.hasOwn(stated, key) && stated[key] !== ofToken[key])
}
