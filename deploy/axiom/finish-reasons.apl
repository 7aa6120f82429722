// Responses by provider and finish reason. Show it as a bar chart.
// An ending that became known better is a second event with a higher `sequence`: the newest one counts.
['gateway-requests']
| summarize arg_max(sequence, provider, finish_reason) by id
| summarize responses = count() by provider, finish_reason
| order by responses desc
