/** Lines of generated documents. */

/** As long as a line of a document may be, in characters. */
export const DOCUMENT_WIDTH = 120

/**
 * An item of a Markdown list: `text` after `- `, with further lines set in by two spaces. A word that is longer than a
 * line stays whole.
 */
export function listItem(text: string): string {
  const lines: string[] = []
  let line = '-'
  for (const word of text.split(/\s+/).filter((one) => one !== '')) {
    if (line.length > 1 && line.length + 1 + word.length > DOCUMENT_WIDTH) {
      lines.push(line)
      line = ' '
    }
    line += ` ${word}`
  }
  return [...lines, line].join('\n')
}
