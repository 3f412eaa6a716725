/** How a line of a test begins that says what was measured again, and why: the runner of the tests shows it. */
export const AGAIN = 'measured again:'
