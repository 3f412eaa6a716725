/**
 * Which endpoints of a service are one pod. An EndpointSlice has one family, so a pod with two is in two slices, by
 * addresses that have nothing in common. Pure.
 */
import { type EndpointSlice, type SliceEndpoint, nameHash } from '../model.ts'

/** On imported slices: the keys of its endpoints in their order, with commas between; empty for none. */
export const ANNOTATION_PODS = 'sealane.io/pods'

const KEY = /^[0-9a-f]{1,16}$/
/** Two of 5,000 pods have the same in one of 300 services; they then come and go together in answers that are cut. */
const KEY_LENGTH = 8

export function isPodKey(text: string): boolean {
  return KEY.test(text)
}

/** Undefined for what is no pod. */
export function podKey({ targetRef }: Pick<SliceEndpoint, 'targetRef'>): string | undefined {
  const { kind, uid, name } = targetRef ?? {}
  const identity = uid ?? name
  return kind === 'Pod' && identity !== undefined ? nameHash(identity).slice(0, KEY_LENGTH) : undefined
}

/** The annotation's value for the keys of the endpoints in their order; undefined where none has a usable one. */
export function podsText(keys: readonly (string | undefined)[]): string | undefined {
  const usable = keys.map((key) => (key !== undefined && isPodKey(key) ? key : ''))
  return usable.some((key) => key !== '') ? usable.join() : undefined
}

/** The keys of a slice's endpoints in their order; none where the annotation does not fit them. */
export function podsOf({ metadata, endpoints = [] }: EndpointSlice): readonly (string | undefined)[] {
  const keys = metadata.annotations?.[ANNOTATION_PODS]?.split(',') ?? []
  return keys.length === endpoints.length ? keys.map((key) => (isPodKey(key) ? key : undefined)) : []
}
