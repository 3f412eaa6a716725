/** What a node is to a lane that it may serve. */

/** unknown: the API has not said yet who holds the lane. */
export type Tenure =
  | { readonly is: 'unknown'; readonly why: string }
  | { readonly is: 'serving' }
  | { readonly is: 'handing over'; readonly holder: string }
  | { readonly is: 'standing by'; readonly holder: string }

/** What that makes of a node. */
export function roleIn({ is }: Tenure): 'serve' | 'stand by' | 'wait' {
  if (is === 'unknown') return 'wait'
  return is === 'standing by' ? 'stand by' : 'serve'
}

/** For the log. */
export function tenureText(tenure: Tenure): string {
  switch (tenure.is) {
    case 'unknown':
      return 'nobody knows who holds it'
    case 'serving':
      return 'this node serves it'
    case 'handing over':
      return `handing over to ${tenure.holder}`
    case 'standing by':
      return `standing by, ${tenure.holder === '' ? 'nobody' : tenure.holder} holds it`
  }
}
