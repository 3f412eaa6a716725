/** Texts of a status as long as the API takes them: for one that is too long it refuses the whole status. Pure. */

/** Of `status.failure`, of Gateway and RouteAgent. */
export const MAX_FAILURE_LENGTH = 4096
/** Entries of `status.silentNodes` of a RouteAgent. */
export const MAX_SILENT_NODES = 256
/** Of `status.connections[].message` of a Gateway. */
export const MAX_CONNECTION_MESSAGE_LENGTH = 1024

/** The text, or its beginning and `…`: never longer than `max` (at least 1), and never half a character. */
export function fitText(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, max - 1).replace(/[\uD800-\uDBFF]$/, '')}…`
}

/** How the message of a connection begins to say that it will not come up by itself; what can be done follows. */
export const NEITHER_CALLABLE = 'neither end can be called from outside'

/** That nothing comes from there. */
export const HEARS_NOTHING = 'and hear nothing'

/**
 * What a far cluster calls itself must not steer the reader's terminal, break a line or turn the text round: `?` stands
 * for each such character.
 */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '?')
}

/** Control characters but the two that texts are laid out with, halves of pairs, and what turns or breaks a line. */
const STEERS = /[^\P{Cc}\n\t]|\p{Cs}|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu

/** Whole text of ours, with newlines and tabs, as a terminal may have it: `?` stands for what would steer it. */
export function forTerminal(text: string): string {
  return text.replaceAll(STEERS, '?')
}

/** The same of JSON, which can spell such a character: it stays what it was. */
export function jsonForTerminal(json: string): string {
  return json.replaceAll(STEERS, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
