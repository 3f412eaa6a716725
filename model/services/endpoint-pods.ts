/**
 * Identifies the endpoints of a service that are the same pod. An EndpointSlice has one family, so a dual-stack pod is
 * in two slices, with unrelated addresses. Pure.
 */
import { type EndpointSlice, type SliceEndpoint, nameHash } from '../model.ts'

/**
 * On imported slices: the keys of its endpoints in their order, separated by commas; empty for an endpoint without a
 * key.
 */
export const ANNOTATION_PODS = 'sealane.io/pods'

const KEY = /^[0-9a-f]{1,16}$/
/**
 * With 5,000 pods in a service, two have the same key in one of 300 services. They are then included or left out
 * together in truncated answers.
 */
const KEY_LENGTH = 8

export function isPodKey(text: string): boolean {
  return KEY.test(text)
}

/** Undefined if the endpoint is not a pod. */
export function podKey({ targetRef }: Pick<SliceEndpoint, 'targetRef'>): string | undefined {
  const { kind, uid, name } = targetRef ?? {}
  const identity = uid ?? name
  return kind === 'Pod' && identity !== undefined ? nameHash(identity).slice(0, KEY_LENGTH) : undefined
}

/** Returns the annotation's value for the keys of the endpoints in their order; undefined if none has a usable key. */
export function podsText(keys: readonly (string | undefined)[]): string | undefined {
  const usable = keys.map((key) => (key !== undefined && isPodKey(key) ? key : ''))
  return usable.some((key) => key !== '') ? usable.join() : undefined
}

/** Returns the keys of a slice's endpoints in their order; empty if the annotation does not match them. */
export function podsOf({ metadata, endpoints = [] }: EndpointSlice): readonly (string | undefined)[] {
  const keys = metadata.annotations?.[ANNOTATION_PODS]?.split(',') ?? []
  return keys.length === endpoints.length ? keys.map((key) => (isPodKey(key) ? key : undefined)) : []
}
