/**
 * Rows as the page may get them: each text is cut and made printable, each list has a limit. Names, labels and messages
 * come from other members.
 */
import { fitText, printable } from '../../model/model.ts'
import type { Section } from './document.ts'

/** The answer to a question that facts do not contain. */
export type Answer<T> =
  | {
      readonly t: 'known'
      readonly at: string
      readonly value: T
      /** Why there is no newer one. */
      readonly why?: string
    }
  | { readonly t: 'none'; readonly why: string }

/** The characters that the rows of one section have as JSON. */
const MAX_SECTION = 1 << 20
const MAX_NAME = 128
export const MAX_MESSAGE = 400
/** Of a list in a row. */
export const MOST_ITEMS = 16

/** Takes rows until there are `most`, or until they fill the section. */
export function section<T, R>(
  command: string,
  items: readonly T[],
  most: number,
  rowOf: (item: T, index: number) => R,
): Section<R> {
  const rows: R[] = []
  let left = MAX_SECTION
  for (const [i, item] of items.entries()) {
    if (i >= most) break
    const row = rowOf(item, i)
    left -= JSON.stringify(row).length
    if (left < 0) break
    rows.push(row)
  }
  return { command, rows, more: items.length - rows.length }
}

/** What a section says of an answer that could not be renewed. */
export function staleOf({ at, why }: { readonly at: string; readonly why?: string }): Pick<Section<unknown>, 'stale'> {
  return why === undefined ? {} : { stale: { at: clipped(at), why: clipped(why, MAX_MESSAGE) } }
}

/** The cut comes first: a text may have megabytes. */
export function clipped(text: string, max = MAX_NAME): string {
  return printable(fitText(text, max))
}

export function listed(texts: readonly string[] | null | undefined): readonly string[] {
  return (texts ?? []).slice(0, MOST_ITEMS).map((text) => clipped(text))
}

/** Without those that are not known. */
export function numbers<K extends string>(
  values: Readonly<Record<K, number | undefined>>,
): { readonly [key in K]?: number } {
  const known = Object.entries<number | undefined>(values).filter(([, value]) => value !== undefined)
  return Object.fromEntries(known) as { readonly [key in K]?: number }
}

interface Named {
  readonly namespace?: string | undefined
  readonly name: string
}

export function keyOf({ namespace = '', name }: Named): string {
  return `${namespace}/${name}`
}

/** One end of a packet, as the programs that read them describe it. */
export interface PacketEnd {
  readonly address: string
  readonly cluster?: string
  readonly namespace?: string
  readonly service?: string
  readonly pod?: string
}

/** The text of a service has its namespace already. */
export function endText({ cluster, address, namespace, service, pod }: PacketEnd): string {
  const space = service === undefined && pod !== undefined ? namespace : undefined
  const place = [space, pod].flatMap((one) => (one === undefined ? [] : [clipped(one)])).join('/')
  const parts = [cluster, address, service].flatMap((one) => (one === undefined ? [] : [clipped(one)]))
  return clipped([...parts, ...(place === '' ? [] : [place])].join(' '), MAX_MESSAGE)
}

/** Adds the flags that name the target. Other commands are for other machines, or have flags of their own. */
export function withFlags(command: string, flags: string): string {
  return /^sealane (show|status|diagnose)\b(?!.* --)/.test(command) ? `${command} ${flags}` : command
}

export function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}
