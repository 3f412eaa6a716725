/** Lines of generated documents. */

/** As long as a line of a document may be, in characters. */
export const DOCUMENT_WIDTH = 120

/** An item of a Markdown list: `text` after `- `, with further lines set in by two spaces. */
export function listItem(text: string): string {
  return wrapped(text, '-', '  ')
}

/** A paragraph. */
export function paragraph(text: string): string {
  return wrapped(text, '', '')
}

/** Lines that begin with `mark`, and then with `indent`. A word that is longer than a line stays whole. */
function wrapped(text: string, mark: string, indent: string): string {
  const lines: string[] = []
  let line = mark
  let isEmpty = true
  for (const word of text.split(/\s+/).filter((one) => one !== '')) {
    const start = line === '' ? line : `${line} `
    if (!isEmpty && start.length + word.length > DOCUMENT_WIDTH) {
      lines.push(line)
      line = `${indent}${word}`
    } else line = `${start}${word}`
    isEmpty = false
  }
  return [...lines, line].join('\n')
}
