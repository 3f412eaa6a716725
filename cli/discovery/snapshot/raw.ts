/**
 * Looking into objects that a cluster gave us. Nothing about them is believed: every look is safe on any value and
 * gives undefined or nothing where the shape is another one. Pure.
 */
import { parseYaml } from '../../../kubeapi/yaml.ts'

/** The value below own keys and list positions; undefined where the way ends. */
export function at(value: unknown, ...path: readonly (string | number)[]): unknown {
  let here = value
  for (const key of path) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, key)) return undefined
    here = (here as Readonly<Record<string | number, unknown>>)[key]
  }
  return here
}

/** A text that is not empty. */
export function textAt(value: unknown, ...path: readonly (string | number)[]): string | undefined {
  const found = at(value, ...path)
  return typeof found === 'string' && found !== '' ? found : undefined
}

/** A list, at most a thousand entries of it; none where there is no list. */
export function listAt(value: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const found = at(value, ...path)
  return Array.isArray(found) ? (found.slice(0, 1000) as unknown[]) : []
}

export function textsAt(value: unknown, ...path: readonly (string | number)[]): string[] {
  return listAt(value, ...path).filter((entry) => typeof entry === 'string')
}

export function keysAt(value: unknown, ...path: readonly (string | number)[]): string[] {
  const found = at(value, ...path)
  return typeof found === 'object' && found !== null && !Array.isArray(found) ? Object.keys(found) : []
}

export function nameOf(object: unknown): string {
  return textAt(object, 'metadata', 'name') ?? ''
}

export function labelOf(object: unknown, key: string): string | undefined {
  const found = at(object, 'metadata', 'labels', key)
  return typeof found === 'string' ? found : undefined
}

export function annotationOf(object: unknown, key: string): string | undefined {
  return textAt(object, 'metadata', 'annotations', key)
}

/** YAML or JSON inside a text, such as a file in a ConfigMap; undefined when it is neither. */
export function documentIn(text: string | undefined): unknown {
  if (text === undefined || text.length > 200_000) return undefined
  try {
    return parseYaml(text)
  } catch {
    return undefined
  }
}

/** Names from a cluster must not steer the reader's terminal, break a line or turn the text round. */
export function printable(text: string): string {
  return text.slice(0, 200).replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '?')
}
