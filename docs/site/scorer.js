// The search's scores: lists of all changes, files and results come last.
const LISTS = /^(changelog|reference\/files|results\/)/;
var Scorer = {
  score: ([page, , , , score]) => (LISTS.test(page) ? score - 20 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
