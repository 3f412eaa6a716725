/** Mutants that behave as the original file does: no test can kill them, so they are not tried. */
import type { Mutant } from './make-mutants.ts'

interface Equivalent {
  readonly file: string
  /** The replaced text; all places in the file with the same replacement are meant. */
  readonly was: string
  readonly becomes: string
  readonly why: string
}

export const EQUIVALENT: readonly Equivalent[] = [
  {
    file: 'agent/export/importers.ts',
    was: 'if (names.length > MAX_NAMES) break',
    becomes: ';',
    why: 'of more names the first five are said all the same: it saves the loop of thousands',
  },
  {
    file: 'kernel/wireguard/wg-text.ts',
    was: 'a.publicKey < b.publicKey',
    becomes: 'a.publicKey <= b.publicKey',
    why: 'no two peers of a device have the same key',
  },
  {
    file: 'protocol/codec/messages-codec.ts',
    was: 'message.events.length <= MAX_SMALL',
    becomes: 'message.events.length < MAX_SMALL',
    why: 'a batch that is looked at more closely is one part with the same events',
  },
]

export function isEquivalent({ file, was, becomes }: Mutant): boolean {
  return EQUIVALENT.some((one) => one.file === file && one.was === was && one.becomes === becomes)
}
